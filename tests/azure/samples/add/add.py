print("added")
