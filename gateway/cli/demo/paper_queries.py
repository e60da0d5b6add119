"""The paper's queries Q1-Q9 (its Tables 4, 6 and 7), and one that an honest estimate gets wrong."""

from __future__ import annotations

PAPER_QUERIES = {
    "Q1": "SELECT count(*) FROM books WHERE price < 30",
    "Q2": "SELECT count(*) FROM transactions WHERE quantity >= 5",
    "Q3": "SELECT count(*) FROM transactions JOIN books ON (transactions.book_id = books.id AND books.price < 30)",
    "Q4": "SELECT * FROM transactions JOIN books ON (transactions.book_id = books.id AND books.price < 30) LIMIT 10",
    "Q5": "SELECT COUNT(*) FROM transactions",
    "Q6": "SELECT COUNT(*) FROM customers WHERE name = 'Harrison SMITH'",
    "Q7": "SELECT category, count(*) cnt FROM books GROUP BY category ORDER BY cnt DESC LIMIT 10",
    "Q8": "SELECT * FROM transactions JOIN books ON (transactions.book_id = books.id AND books.price < 80) LIMIT 10",
    "Q9": "SELECT tmp.book_category, ROUND(tmp.revenue, 2) AS revenue FROM (SELECT books.category AS book_category, "
    "SUM(books.price * transactions.quantity) AS revenue FROM books JOIN transactions "
    "ON (transactions.book_id = books.id AND books.price < 80) GROUP BY books.category) tmp "
    "ORDER BY revenue DESC LIMIT 10",
}

# No statistic answers a fuzzy match, so it is taken for an ordinary equality, one value of all. But the largest house
# publishes a tenth of the books, so that tens of times more rows come out than expected.
SURPRISE_QUERY = (
    "SELECT customer_id, isbn, publisher, transaction_date, SUM(price * quantity) AS revenue "
    "FROM transactions JOIN books ON transactions.book_id = books.id "
    "WHERE levenshtein(publisher, 'Harrow & Vale Publishing House') = 0 "
    "GROUP BY customer_id, isbn, publisher, transaction_date ORDER BY revenue DESC, customer_id, isbn LIMIT 10"
)
