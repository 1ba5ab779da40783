"""The data plane of one broker: its replicas, their leaders and followers, and what is asked of them."""
