"""Knowledge shared by routers through Redis or Valkey: never waited for longer than a deadline, never needed."""
