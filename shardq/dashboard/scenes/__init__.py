"""What each screen shows, as plain data. One module a screen."""
