"""The receiver of spans that other instrumentations create in this process."""
