"""Revenue per country: orders stream in, customers come from MySQL, a view sums up."""
