"""How a layer, Adam, a gather and a sum are computed."""
