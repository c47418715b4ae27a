"""Units that are taken here and scored in another process: their copies, and how these get there."""
