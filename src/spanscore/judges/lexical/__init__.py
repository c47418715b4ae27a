"""The offline judge: it compares words, asks nobody and costs nothing."""
