"""`warmroute replay`: files, processes and a terminal around `router.replay`."""
