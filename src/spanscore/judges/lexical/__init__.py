"""The offline judge, which compares words, asks no model and costs nothing."""
