"""Transactions as they wait: for coordinators, for answers, and for who ends them."""
