print("a part of a GPU")
