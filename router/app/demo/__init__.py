"""`warmroute demo`: the same chats through prefix affinity and through round robin, over simulated replicas."""
