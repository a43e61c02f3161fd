"""Keep-warm touches: which idle session a one-token request should renew, and whether that pays."""
