"""Reports that are read in a browser: of studies, plans and comparisons, one file each that needs nothing else."""

from planner.reports.pages.comparison import comparison_page as comparison_page
from planner.reports.pages.page import Page as Page
from planner.reports.pages.page import to_html as to_html
from planner.reports.pages.pictures import write_pictures as write_pictures
from planner.reports.pages.plan import plan_page as plan_page
from planner.reports.pages.profile import profile_page as profile_page
from planner.reports.pages.study import study_page as study_page
