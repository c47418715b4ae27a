"""Real servers on loopback: installed once into a cache outside the tree, started by fixtures, never outliving them."""
