"""The server's end of the wire: who may connect, sessions, their messages, the event loop."""
