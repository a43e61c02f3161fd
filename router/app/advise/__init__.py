"""`warmroute advise`: files, a running router and a terminal around `router.replay.advice`."""
