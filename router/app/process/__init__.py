"""The process: starting, serving, reloading and stopping it, alone or as one of several workers."""
