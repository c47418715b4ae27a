"""What is known of metrics: by name, from a configuration, described, priced."""
