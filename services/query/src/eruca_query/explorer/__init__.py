"""What the docs explorer at ``/docs`` shows: every service of the cluster, this one last."""
