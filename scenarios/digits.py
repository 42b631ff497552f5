"""The images of handwritten digits that knn and kmeans work on; see digits.csv in this folder."""
import csv
import os

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.csv")


def load(file=FILE):
    """1,797 images of 64 numbers, 0 to 16, and which digit each is."""
    with open(file) as rows:
        numbers = [[int(number) for number in row] for row in csv.reader(rows)]
    return [row[:-1] for row in numbers], [row[-1] for row in numbers]
