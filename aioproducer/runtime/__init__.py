"""What every part that runs in an event loop needs: a lifetime, a log, deadlines, tasks of the user's, a thread."""
