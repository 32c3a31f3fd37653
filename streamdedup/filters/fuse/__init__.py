"""The binary fuse filter: static, built once from all of its keys."""
