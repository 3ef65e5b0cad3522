"""Maintainers' measurements: of speed (`td3 bench`), and results, trained, compared and stored (`td3 reproduce`)."""
