"""A program that does nothing, for ever: in the place of a hub that does not come up."""

import signal

signal.pause()
