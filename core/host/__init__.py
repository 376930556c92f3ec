"""Host-stepped environments: Gymnasium's, in this process or in workers."""
