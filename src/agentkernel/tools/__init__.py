"""What is measured, judged and built? Functions from typed input to frozen results."""
