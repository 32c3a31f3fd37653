"""The metrics: the catalogue of their names, and the counts behind them."""
