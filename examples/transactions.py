"""All or nothing: an order and its payment become visible together, and a transaction that fails never does.

Readers with ``isolation_level=read_committed`` see a transaction when it is committed. `run_in_transaction` does the work
again if a retry can succeed; work that must not be repeated belongs outside of it.
"""

from __future__ import annotations

import asyncio

from _broker import bootstrap_servers

from aioproducer import Producer, Transaction


class NotEnoughMoney(Exception):
    """The customer cannot pay."""


async def main() -> None:
    async with Producer(bootstrap_servers(), transactional_id="shop-1") as producer:
        async with producer.transaction() as txn:
            await txn.enqueue("orders", "order 1: 3 books", key="alice")
            await txn.enqueue("payments", "order 1: 45 EUR", key="alice")
        print("order 1: committed")  # nothing of it was visible before, all of it is now

        try:
            async with producer.transaction() as txn:
                await txn.send("orders", "order 2: a yacht", key="bob")  # acknowledged, and still not visible
                raise NotEnoughMoney("bob")
        except NotEnoughMoney as error:
            print(f"order 2: aborted, as {error} has not enough money")

        async def work(txn: Transaction) -> int:
            delivered = await txn.send("orders", "order 3: a pen", key="carol")
            await txn.enqueue("payments", "order 3: 2 EUR", key="carol")
            return delivered.offset

        print(f"order 3: committed at offset {await producer.run_in_transaction(work)}")


if __name__ == "__main__":
    asyncio.run(main())
