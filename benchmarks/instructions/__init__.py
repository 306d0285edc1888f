"""Instructions of the engine's hot paths, counted by callgrind: they repeat where times do not."""
