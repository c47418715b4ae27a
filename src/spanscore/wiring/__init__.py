"""Options → the parts of one scorer: made, started, drained and shown by status(); no public class."""
