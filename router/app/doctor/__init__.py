"""`warmroute doctor`: looks at a live set-up from outside and says what to change."""
