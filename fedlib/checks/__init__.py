"""Whether a method keeps the contract: short runs on digits, and what they must show. `fedlib check` and the tests."""
