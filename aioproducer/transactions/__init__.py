"""The asynchronous side of transactions: requests to coordinators, their responses, and the calls of users."""
