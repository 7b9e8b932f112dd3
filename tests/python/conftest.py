"""What all tests of the package need."""

import signal

# What runs in the background is often given SIGINT ignored. Programs that a test starts would inherit that, and Python would
# set no handler in them; a signal that has one here is a plain one there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
