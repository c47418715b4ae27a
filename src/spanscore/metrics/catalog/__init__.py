"""The catalogue of metrics: by name, from a configuration, with their documentation and cost."""
