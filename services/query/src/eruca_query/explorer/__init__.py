"""The services in the docs explorer at ``/docs``: every service of the cluster, this one last."""
