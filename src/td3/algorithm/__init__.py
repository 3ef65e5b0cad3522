"""TD3 in fifteen steps; read the files in the order of their names. How a layer is computed is the backend's work."""
