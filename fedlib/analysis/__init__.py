"""From results to tables: what items are made of, for use on any runs."""
