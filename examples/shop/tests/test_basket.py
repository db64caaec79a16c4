import unittest

from shop.basket import Basket


class TestBasket(unittest.TestCase):
    def test_total(self):
        basket = Basket()
        for _ in range(3):
            basket.add(10)
        self.assertEqual(basket.total(), 30)

    def test_empty(self):
        self.assertEqual(Basket().total(), 0)


if __name__ == "__main__":
    unittest.main()
