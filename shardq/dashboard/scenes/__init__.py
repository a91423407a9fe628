"""The content of each screen, as plain data. One module a screen."""
