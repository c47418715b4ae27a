"""The receiver of spans that other instrumentations make in this process."""
