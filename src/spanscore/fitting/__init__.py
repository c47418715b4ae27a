"""Human labels → a judge's demonstrations and instruction, kept only where they are shown to help."""
