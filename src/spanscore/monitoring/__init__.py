"""What the sums say: estimates, the same as PromQL, rules for Prometheus and Grafana, an endpoint to be scraped."""
