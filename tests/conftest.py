"""What all tests share: the broker ladder (fixtures `broker` and `private_broker`)."""

pytest_plugins = ["tests.broker.plugin"]
