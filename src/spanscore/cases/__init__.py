"""Units that failed as cases of a data set: what one says, and the file to which a scorer appends them."""
