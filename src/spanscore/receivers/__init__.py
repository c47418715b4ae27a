"""Where units come in."""
