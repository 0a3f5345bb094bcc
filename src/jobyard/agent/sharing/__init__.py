"""Reservations: how do yards of several users share one machine?"""
