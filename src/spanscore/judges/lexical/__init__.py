"""The offline judge: it compares words, asks no model and costs nothing."""
