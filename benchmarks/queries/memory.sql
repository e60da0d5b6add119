-- Sixty queries over TPC-H and the bookstore that differ in what takes memory. Their names tell the operator.

-- join-books-80
SELECT * FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 80 LIMIT 10;

-- join-books-30
SELECT * FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 30 LIMIT 10;

-- join-books-55
SELECT sum(quantity * price) FROM transactions JOIN books ON book_id = books.id AND price < 55;

-- join-books-all-narrow
SELECT count(*) FROM transactions JOIN books ON transactions.book_id = books.id;

-- join-books-category
SELECT category, sum(quantity) FROM transactions JOIN books ON book_id = books.id AND price < 45 GROUP BY category;

-- join-books-isbn
SELECT max(isbn), min(publisher) FROM transactions JOIN books ON book_id = books.id AND price < 35;

-- join-customers-wide
SELECT max(name), max(email), max(phone), max(state) FROM transactions JOIN customers ON customer_id = customers.id;

-- join-customers-name
SELECT max(name) FROM transactions JOIN customers ON customer_id = customers.id AND gender = 'F';

-- join-customers-state
SELECT state, count(*) FROM transactions JOIN customers ON customer_id = customers.id
WHERE date_of_birth < DATE '1975-01-01' GROUP BY state;

-- join-three
SELECT books.category, customers.state, sum(quantity) FROM transactions
JOIN books ON book_id = books.id JOIN customers ON customer_id = customers.id
WHERE price < 40 AND gender = 'M' GROUP BY ALL;

-- join-three-wide
SELECT max(isbn), max(email), max(publisher), max(name) FROM transactions
JOIN books ON book_id = books.id JOIN customers ON customer_id = customers.id WHERE price < 50 AND state < 'M';

-- join-orders-lineitem
SELECT sum(l_extendedprice * (1 - l_discount)), max(o_orderdate) FROM lineitem JOIN orders ON l_orderkey = o_orderkey;

-- join-orders-comment
SELECT max(o_comment), sum(l_quantity) FROM lineitem JOIN orders ON l_orderkey = o_orderkey
WHERE o_totalprice > 100000;

-- join-orders-wide
SELECT max(o_comment), max(o_clerk), max(o_orderpriority), min(o_orderstatus), sum(o_totalprice), sum(l_tax)
FROM lineitem JOIN orders ON l_orderkey = o_orderkey WHERE o_orderdate < DATE '1995-06-01';

-- join-partsupp-two-keys
SELECT sum(ps_supplycost * l_quantity) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey;

-- join-partsupp-comment
SELECT max(ps_comment), sum(l_quantity) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
WHERE ps_availqty < 4000;

-- join-part-name
SELECT max(p_name), max(p_type) FROM lineitem JOIN part ON l_partkey = p_partkey;

-- join-customer-orders-lineitem
SELECT c_mktsegment, sum(l_extendedprice) FROM customer JOIN orders ON c_custkey = o_custkey
JOIN lineitem ON l_orderkey = o_orderkey WHERE o_orderdate >= DATE '1993-01-01' GROUP BY c_mktsegment;

-- join-five
SELECT n_name, sum(ps_supplycost * l_quantity) FROM lineitem JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey JOIN nation ON c_nationkey = n_nationkey
GROUP BY n_name;

-- join-string-key
SELECT count(*) FROM customers a JOIN customers b ON a.email = b.email WHERE a.state < 'F' AND b.gender = 'F';

-- join-string-key-payload
SELECT max(a.phone), max(b.name) FROM customers a JOIN customers b ON a.phone = b.phone WHERE b.state > 'S';

-- join-date-key
SELECT count(*) FROM orders JOIN (SELECT DISTINCT l_shipdate FROM lineitem WHERE l_quantity < 10) d
ON o_orderdate = d.l_shipdate;

-- join-self-orders
SELECT count(*), max(b.o_totalprice) FROM orders a JOIN orders b ON a.o_orderkey = b.o_orderkey + 1;

-- left-customer-orders
SELECT count(*), max(o_comment) FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_totalprice > 150000;

-- left-customers-transactions
SELECT sum(quantity), max(name) FROM customers LEFT JOIN transactions ON customers.id = customer_id AND quantity > 3;

-- left-books-unsold
SELECT count(*) FROM books LEFT JOIN transactions ON books.id = book_id AND transaction_date < DATE '2012-01-01'
WHERE transactions.id IS NULL;

-- right-books
SELECT max(isbn), sum(quantity) FROM transactions RIGHT JOIN books ON book_id = books.id;

-- full-customers
SELECT count(*), sum(quantity), max(email) FROM transactions FULL JOIN customers ON customer_id = customers.id;

-- full-orders-customer
SELECT count(*), max(c_address), max(o_clerk) FROM orders FULL JOIN customer ON o_custkey = c_custkey;

-- semi-books
SELECT count(*), max(isbn) FROM books WHERE id IN (SELECT book_id FROM transactions WHERE quantity > 4);

-- semi-orders
SELECT max(o_comment) FROM orders WHERE EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_discount > 0.07);

-- anti-customers
SELECT count(*), max(name) FROM customers WHERE NOT EXISTS (SELECT 1 FROM transactions WHERE customer_id = customers.id);

-- anti-customer
SELECT max(c_comment) FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders WHERE o_orderdate > DATE '1996-01-01');

-- mark-books
SELECT count(*) FROM books WHERE price < 5 OR id IN (SELECT book_id FROM transactions WHERE quantity = 1);

-- cross-small
SELECT count(*) FROM supplier CROSS JOIN (SELECT p_name, p_type FROM part WHERE p_size < 3) p WHERE length(p_name) > s_nationkey;

-- range-join
SELECT count(*) FROM supplier JOIN (SELECT c_acctbal, c_name FROM customer WHERE c_custkey % 50 = 0) c ON s_acctbal < c_acctbal;

-- group-customers
SELECT customer_id, sum(quantity), count(*) FROM transactions GROUP BY customer_id;

-- group-books-count
SELECT max(n) FROM (SELECT book_id, count(*) AS n FROM transactions GROUP BY book_id) g;

-- group-orderkey
SELECT max(q) FROM (SELECT l_orderkey, sum(l_quantity) AS q FROM lineitem GROUP BY l_orderkey) g;

-- group-two-keys
SELECT max(n), max(s) FROM (SELECT l_partkey, l_suppkey, count(*) AS n, sum(l_extendedprice) AS s FROM lineitem
GROUP BY l_partkey, l_suppkey) g;

-- group-string
SELECT max(n) FROM (SELECT name, count(*) AS n FROM customers GROUP BY name) g;

-- group-emails
SELECT count(*) FROM (SELECT email, min(date_of_birth) AS born FROM customers GROUP BY email) g WHERE born < DATE '1960-01-01';

-- group-few
SELECT l_shipmode, l_returnflag, count(*), avg(l_discount), max(l_comment) FROM lineitem GROUP BY l_shipmode, l_returnflag;

-- group-dates
SELECT transaction_date, sum(quantity) AS sold FROM transactions GROUP BY transaction_date;

-- group-clerk
SELECT o_clerk, sum(o_totalprice), max(o_orderdate) FROM orders GROUP BY o_clerk;

-- group-custkey-wide
SELECT o_custkey, min(o_comment), max(o_clerk), avg(o_totalprice), sum(o_shippriority) FROM orders GROUP BY o_custkey;

-- distinct-books
SELECT count(DISTINCT book_id) FROM transactions;

-- distinct-per-category
SELECT state, count(DISTINCT customer_id) FROM transactions JOIN customers ON customer_id = customers.id GROUP BY state;

-- distinct-pairs
SELECT DISTINCT l_suppkey, l_shipdate FROM lineitem WHERE l_quantity < 15;

-- distinct-strings
SELECT count(*) FROM (SELECT DISTINCT l_shipinstruct, l_comment FROM lineitem WHERE l_shipdate < DATE '1994-01-01') d;

-- sort-transactions
SELECT * FROM transactions ORDER BY transaction_date, id;

-- sort-customers-name
SELECT name, email FROM customers WHERE gender = 'F' ORDER BY name;

-- sort-lineitem
SELECT l_orderkey, l_extendedprice, l_shipdate FROM lineitem WHERE l_discount < 0.05 ORDER BY l_extendedprice DESC;

-- sort-orders-comment
SELECT o_orderkey, o_comment FROM orders ORDER BY o_totalprice;

-- top-ten
SELECT * FROM transactions ORDER BY quantity DESC, id LIMIT 10;

-- top-thousand
SELECT l_orderkey, l_comment, l_extendedprice FROM lineitem ORDER BY l_extendedprice DESC LIMIT 1000;

-- top-many
SELECT id, name, email FROM customers ORDER BY date_of_birth, id LIMIT 200000;

-- window-customer
SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC) AS r FROM orders) w;

-- window-running
SELECT max(s) FROM (SELECT sum(quantity) OVER (PARTITION BY customer_id ORDER BY transaction_date, id) AS s
FROM transactions WHERE quantity < 3) w;

-- cte-twice
WITH spent AS MATERIALIZED (SELECT customer_id, sum(quantity * price) AS amount FROM transactions
  JOIN books ON book_id = books.id WHERE price < 25 GROUP BY customer_id)
SELECT count(*) FROM spent WHERE amount > (SELECT avg(amount) FROM spent);
