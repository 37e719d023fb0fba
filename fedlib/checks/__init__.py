"""Whether a method keeps the contract: short runs on digits, and what they must show. For `fedlib run --check`
and the tests."""
